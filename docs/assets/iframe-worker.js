// A page that was opened from a folder may not start workers: its search runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(address) {
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.documentElement.append(this.frame);
      const inner = this.frame.contentWindow;
      inner.postMessage = (data) => this.onmessage?.({ data });
      this.ready = new Promise((resolve, reject) => {
        const script = inner.document.createElement("script");
        script.src = address;
        script.onload = () => resolve(inner);
        script.onerror = reject;
        inner.document.head.append(script);
      });
      this.ready.catch((error) => this.onerror?.(error));
    }

    postMessage(data) {
      this.ready.then((inner) => inner.onmessage({ data }));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
