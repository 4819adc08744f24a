// Calls a tool over gRPC with stubs that are generated from the contract; docs/clients.md says how to make them.
//
//	TOOLMESH_TOKEN=... go run . 127.0.0.1:8080
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	executorv1 "toolmesh.dev/go/executor/v1"
)

func main() {
	conn, err := grpc.NewClient(os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+os.Getenv("TOOLMESH_TOKEN"))
	response, err := executorv1.NewExecutorServiceClient(conn).Invoke(ctx, &executorv1.InvokeRequest{
		Tool: "echo", Arguments: []byte(`{"text": "hello from Go"}`),
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(response.Result.StructuredContent))
}
