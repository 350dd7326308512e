// java Driver.java URL QUEUE COUNT how, with the block of docs/clients.md behind it: fails at COUNT messages. How: declare,
// by the block; or spring, which publishes what Spring's RepublishMessageRecoverer does.
import com.rabbitmq.client.*;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeoutException;

public class Driver {
    static class OutOfStock extends RuntimeException {
        OutOfStock(String message) { super(message); }
    }

    static void handle(String text, int more) {
        throw new OutOfStock("item " + text + ": \"none\" left, größer als nichts\n" + "nothing at all ".repeat(more));
    }

    public static void main(String[] given) throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(given[0]);
        Connection connection = factory.newConnection();
        Channel channel = connection.createChannel();
        Deaths deaths = new Deaths(connection);
        for (int left = Integer.parseInt(given[2]); left > 0; ) {
            GetResponse message = channel.basicGet(given[1], false);
            if (message == null) {
                Thread.sleep(20);
                continue;
            }
            left--;
            try {
                handle(new String(message.getBody(), StandardCharsets.UTF_8), given[3].equals("spring") ? 1 : 20_000);
            } catch (RuntimeException why) {
                try {
                    if (given[3].equals("spring")) republish(channel, message, given[1], why);
                    else deaths.declare(message.getEnvelope(), message.getProps(), message.getBody(), given[1], why);
                    channel.basicAck(message.getEnvelope().getDeliveryTag(), false);
                } catch (IOException refused) {
                    System.out.println("refused " + refused.getMessage());
                    channel.basicReject(message.getEnvelope().getDeliveryTag(), false);
                }
            }
        }
        connection.close();
    }

    /** As Spring AMQP does: the trace of the listener's exception, which was caused by that of the application. */
    static void republish(Channel channel, GetResponse message, String queue, RuntimeException why) throws IOException {
        RuntimeException wrapped = new RuntimeException("Listener method 'take' threw exception", why);
        StringWriter trace = new StringWriter();
        wrapped.printStackTrace(new PrintWriter(trace, true));
        Map<String, Object> headers = new HashMap<>();
        if (message.getProps().getHeaders() != null) headers.putAll(message.getProps().getHeaders());
        headers.put("x-exception-stacktrace", trace.toString());
        headers.put("x-exception-message", wrapped.getCause().getMessage());
        headers.put("x-original-exchange", message.getEnvelope().getExchange());
        headers.put("x-original-routingKey", message.getEnvelope().getRoutingKey());
        String expiration = message.getProps().getExpiration();
        headers.put("dlx-death", "{\"queue\":\"" + queue + "\",\"exchange\":\"" + message.getEnvelope().getExchange()
            + "\",\"routing_keys\":[\"" + message.getEnvelope().getRoutingKey() + "\"],\"reason\":\"application:exception\""
            + (expiration == null ? "" : ",\"original_expiration\":\"" + expiration + "\"") + "}");
        channel.basicPublish("dlx-router.declared", message.getEnvelope().getRoutingKey(),
            message.getProps().builder().headers(headers).expiration(null).build(), message.getBody());
    }
}
