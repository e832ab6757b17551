/**
 * Runs a command on this host or on a server and prints its output.
 *
 *   node examples/run-a-command.mjs                       on this host
 *   node examples/run-a-command.mjs ws://127.0.0.1:7070   on a server (`procwire start` starts one)
 */
import { Environment } from "procwire";

await using environment = await Environment.create(process.argv[2] ?? null);

const { stdout, exitCode } = await environment.run(["uname", "-sr"], { timeoutMs: 10_000 });

console.log(`${stdout.trim()} (exit code ${exitCode})`);
