// The official MCP client: lists the tools that the token may use, and calls one.
//
//     npm ci && TOOLMESH_URL=http://127.0.0.1:8080 TOOLMESH_TOKEN=... node mcp_client.ts
//
// Node 22.18 or newer runs this file as it is. The client speaks the newest revision that both sides know.

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const headers = { authorization: `Bearer ${process.env.TOOLMESH_TOKEN}` };
const transport = new StreamableHTTPClientTransport(new URL(`${process.env.TOOLMESH_URL}/mcp`), { requestInit: { headers } });
const client = new Client({ name: "example", version: "1" }, { versionNegotiation: { mode: "auto" } });
await client.connect(transport);
for (const tool of (await client.listTools()).tools) {
  console.log(tool.name, "-", tool.title);
}
const result = await client.callTool({ name: "core__echo", arguments: { text: "hello" } }, { timeout: 10_000 });
console.log(result.structuredContent);
await client.close();
