// A list, its clicks and the ranker's description, by the generated client: PAIRRANK_URL=http://127.0.0.1:8000 go run .
package main

import (
	"context"
	"fmt"
	"os"

	pairrank "pairrank/generated"
)

func document(id string, features ...float64) pairrank.RankDocument {
	return *pairrank.NewRankDocument(id, features)
}

func main() {
	configuration := pairrank.NewConfiguration()
	configuration.Servers = pairrank.ServerConfigurations{{URL: os.Getenv("PAIRRANK_URL")}}
	client := pairrank.NewAPIClient(configuration)
	ctx := context.WithValue(context.Background(), pairrank.ContextAccessToken, os.Getenv("PAIRRANK_KEY"))

	_, _, err := client.RankersAPI.Create(ctx, "go").CreateBody(*pairrank.NewCreateBody(2)).Execute()
	check(err)
	documents := []pairrank.RankDocument{document("boots", 0.1, 0.9), document("sandals", 0.9, 0.1)}
	request := pairrank.NewRankRequest(documents)
	request.SetExplain(true)
	shown, _, err := client.RankingAPI.Rank(ctx, "go").RankRequest(*request).Execute()
	check(err)
	clicks := pairrank.NewFeedbackBody(shown.ImpressionId, []string{"boots"})
	taken, _, err := client.RankingAPI.Feedback(ctx, "go").FeedbackBody(*clicks).Execute()
	check(err)
	ranker, _, err := client.RankersAPI.Read(ctx, "go").Execute()
	check(err)
	fmt.Println(len(shown.Ranking), "documents,", taken.Status+",", ranker.FeedbackCount, "feedback,", len(shown.Explanation.Contributions), "explained")
}

func check(err error) {
	if err != nil {
		if refused, ok := err.(*pairrank.GenericOpenAPIError); ok {
			fmt.Fprintln(os.Stderr, string(refused.Body()))
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
