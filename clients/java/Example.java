import java.util.Arrays;
import java.util.List;
import pairrank.ApiClient;
import pairrank.api.RankersApi;
import pairrank.api.RankingApi;
import pairrank.model.CreateBody;
import pairrank.model.FeedbackBody;
import pairrank.model.RankDocument;
import pairrank.model.RankRequest;

/** A list, its clicks and the ranker's description, by the generated client; the README tells how to run it. */
public class Example {
    static RankDocument document(String id, double... features) {
        return new RankDocument().id(id).features(Arrays.stream(features).boxed().toList());
    }

    public static void main(String[] arguments) throws Exception {
        ApiClient client = new ApiClient();
        client.updateBaseUri(System.getenv("PAIRRANK_URL"));
        if (System.getenv("PAIRRANK_KEY") != null) {
            client.setRequestInterceptor(request -> request.header("Authorization", "Bearer " + System.getenv("PAIRRANK_KEY")));
        }
        var rankers = new RankersApi(client);
        var ranking = new RankingApi(client);
        rankers.create("java", new CreateBody().nFeatures(2));
        var documents = List.of(document("boots", 0.1, 0.9), document("sandals", 0.9, 0.1));
        var shown = ranking.rank("java", new RankRequest().documents(documents).explain(true));
        var taken = ranking.feedback("java", new FeedbackBody().impressionId(shown.getImpressionId()).clicks(List.of("boots")));
        var ranker = rankers.read("java", null);
        int explained = shown.getExplanation().getContributions().size();
        System.out.println(shown.getRanking().size() + " documents, " + taken.getStatus() + ", " + ranker.getFeedbackCount() + " feedback, " + explained + " explained");
    }
}
