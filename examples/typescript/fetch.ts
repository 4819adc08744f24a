// JSON-RPC without a library: calls a tool, and reads why a call failed.
//
//     TOOLMESH_URL=http://127.0.0.1:8080 TOOLMESH_TOKEN=... node fetch.ts
//
// Node 22.18 or newer runs this file as it is.

type Failure = { code: number; message: string; data: { reason: string; retryable: boolean; resolution: string } };
type Answer = { result?: { structured_content: unknown }; error?: Failure };

async function invoke(tool: string, args: object): Promise<unknown> {
  const body = { jsonrpc: "2.0", id: 1, method: "tools.invoke", params: { tool, arguments: args } };
  const response = await fetch(`${process.env.TOOLMESH_URL}/rpc`, {
    method: "POST",
    headers: {
      authorization: `Bearer ${process.env.TOOLMESH_TOKEN}`,
      "content-type": "application/json",
      // Sent again with the same key, a call has one effect.
      "idempotency-key": crypto.randomUUID(),
      "request-timeout": "10",
    },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(15_000),
  });
  const answer = (await response.json()) as Answer;
  if (answer.error) {
    const { reason, resolution } = answer.error.data;
    throw new Error(`${reason}: ${resolution}`);
  }
  return answer.result?.structured_content;
}

console.log(await invoke("core.echo", { text: "hello from TypeScript" }));
try {
  await invoke("core.echo", { words: 1 });
} catch (error) {
  console.log((error as Error).message);
}
