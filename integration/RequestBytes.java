import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/** Writes the messages of standard input as Kafka does: a line "NAME VERSION JSON" becomes a line of hexadecimal. */
public class RequestBytes {
    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split(" ", 3);
            try {
                System.out.println(HexFormat.of().formatHex(written(parts[0], Short.parseShort(parts[1]), parts[2])));
            } catch (Exception problem) {
                System.out.println("refused: " + (problem.getCause() == null ? problem : problem.getCause()));
            }
        }
    }

    private static byte[] written(String name, short version, String json) throws Exception {
        Class<?> converter = Class.forName("org.apache.kafka.common.message." + name + "DataJsonConverter");
        Message message = (Message) converter.getMethod("read", JsonNode.class, short.class)
            .invoke(null, new ObjectMapper().readTree(json), version);
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        return buffer.array();
    }
}
