// The official clients behind one interface: version 2 without a session, version 1 with one.

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { Client as SessionClient } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as SessionTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { CallToolResultSchema } from "@modelcontextprotocol/sdk/types.js";

export type Options = { onprogress?: (report: { progress: number; total?: number }) => void; signal?: AbortSignal };
export type Message = { type: string; task?: { statusMessage?: string }; result?: unknown; error?: Error };
export type Connection = {
  list(): Promise<string[]>;
  call(name: string, args: Record<string, unknown>, options?: Options): Promise<unknown>;
  task?(name: string, args: Record<string, unknown>): AsyncIterable<Message>;
  close(): Promise<void>;
};

const LONGEST_MS = 300_000;
const url = new URL(`${process.env.TOOLMESH_URL}/mcp`);
const requestInit = { headers: { authorization: `Bearer ${process.env.TOOLMESH_TOKEN}` } };
const self = { name: "test", version: "1" };

export async function stateless(): Promise<Connection> {
  const client = new Client(self, { versionNegotiation: { mode: { pin: "2026-07-28" } } });
  await client.connect(new StreamableHTTPClientTransport(url, { requestInit }));
  return {
    list: async () => (await client.listTools()).tools.map((tool) => tool.name),
    call: (name, args, options) => client.callTool({ name, arguments: args }, { timeout: LONGEST_MS, ...options }),
    close: () => client.close(),
  };
}

export async function session(): Promise<Connection> {
  const client = new SessionClient(self, { capabilities: {} });
  await client.connect(new SessionTransport(url, { requestInit }));
  const timeout = { timeout: LONGEST_MS };
  return {
    list: async () => (await client.listTools()).tools.map((tool) => tool.name),
    call: (name, args, options) =>
      client.callTool({ name, arguments: args }, CallToolResultSchema, { ...timeout, ...options }),
    task: (name, args) =>
      client.experimental.tasks.callToolStream({ name, arguments: args }, CallToolResultSchema, {
        ...timeout,
        task: { ttl: LONGEST_MS },
      }) as AsyncIterable<Message>,
    close: () => client.close(),
  };
}
