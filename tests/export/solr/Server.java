import java.nio.file.Path;
import java.util.Properties;
import org.apache.solr.client.solrj.embedded.JettyConfig;
import org.apache.solr.client.solrj.embedded.JettySolrRunner;

/** Solr over HTTP from its jars alone: java -cp 'lib/*' Server.java HOME. It prints its port, and stops with its standard input. */
public class Server {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        JettyConfig config = JettyConfig.builder().setContext("/solr").setPort(0).build();
        JettySolrRunner solr = new JettySolrRunner(Path.of(arguments[0]).toAbsolutePath().toString(), properties, config);
        solr.start();
        System.out.println("PORT " + solr.getLocalPort());
        while (System.in.read() >= 0) {}
        solr.stop();
        System.exit(0);
    }
}
