// The page of the API: its commands can be copied, with the address that the reader came by.

import { copyable } from "./dom.js";

copyable(document);
