import java.net.InetSocketAddress;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;

/** A REST catalog for Iceberg on loopback: the servlet of Iceberg's own tests. Arguments: port, folder of the tables. */
public class RestCatalog {
    public static void main(String[] args) throws Exception {
        JdbcCatalog tables = new JdbcCatalog();
        tables.setConf(new Configuration());
        tables.initialize("lake", Map.of("uri", "jdbc:sqlite:" + args[1] + "/catalog.db", "warehouse", args[1]));
        ServletContextHandler context = new ServletContextHandler();
        context.addServlet(new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(tables))), "/*");
        Server server = new Server(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0])));
        server.setHandler(context);
        server.start();
        server.join();
    }
}
