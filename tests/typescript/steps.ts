// Runs one step of the test with one of the clients, and prints what happens as lines of JSON.
//
//     node steps.ts stateless|session list|call|progress|cancel|approval [report]

import { type Connection, session, stateless } from "./connect.ts";

function print(seen: Record<string, unknown>): void {
  process.stdout.write(`${JSON.stringify(seen)}\n`);
}

const steps: Record<string, (mesh: Connection, argument: string) => Promise<void>> = {
  async list(mesh) {
    print({ tools: await mesh.list() });
  },
  async call(mesh) {
    print({ result: await mesh.call("core__echo", { text: "hi" }) });
    print({ result: await mesh.call("core__echo", { other: 1 }) });
  },
  async progress(mesh) {
    const reports: [number, number | undefined][] = [];
    const onprogress = (report: { progress: number; total?: number }) => reports.push([report.progress, report.total]);
    const result = await mesh.call("samples__count_slowly", { count: 3 }, { onprogress });
    print({ result, reports });
  },
  async cancel(mesh) {
    const canceller = new AbortController();
    const onprogress = () => canceller.abort("enough");
    const call = mesh.call("samples__count_slowly", { count: 10_000 }, { onprogress, signal: canceller.signal });
    await call.then((result) => print({ result }), () => print({ cancelled: canceller.signal.aborted }));
    // A client that leaves would end the call, too.
    await new Promise((resolve) => process.stdin.once("data", resolve));
  },
  async approval(mesh, report) {
    for await (const { type, task, result, error } of mesh.task!("samples__shred_report", { name: report })) {
      print({ type, status: task?.statusMessage, result, error: error?.message });
    }
  },
};

const [how, step, argument] = process.argv.slice(2);
const mesh = await (how === "session" ? session : stateless)();
await steps[step](mesh, argument);
await mesh.close();
process.exit(0);
