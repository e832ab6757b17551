/**
 * Runs a command on this host or on a server and prints its output.
 *
 *   node examples/run-a-command.ts                       on this host
 *   node examples/run-a-command.ts ws://127.0.0.1:7070   on a server (`npm start` starts one)
 *
 * In your own program: `import { Environment, run } from "procwire"`.
 */
import { Environment, run } from "../src/index.ts";

await using environment = await Environment.create(process.argv[2] ?? null);

const { stdout, exitCode } = await run(environment.getExecBackend(), ["uname", "-sr"], { timeoutMs: 10_000 });

console.log(`${stdout.trim()} (exit code ${exitCode})`);
