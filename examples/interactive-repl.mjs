/**
 * Runs an interactive shell in a terminal, types two commands and reads their output.
 *
 *   node examples/interactive-repl.mjs [URL]
 */
import { Environment } from "procwire";

await using environment = await Environment.create(process.argv[2] ?? null);

await using shell = await environment.spawn(["/bin/sh", "-i"], {
  cwd: "/",
  env: { PS1: "ask> " },
  tty: true,
  size: { rows: 24, cols: 80 },
});

let { seq } = await shell.waitFor("ask> ");
for (const command of ["echo $((6 * 7))", "stty size"]) {
  await shell.write(`${command}\n`);
  // The terminal echoes the command; its output is the next line, up to the next prompt.
  const match = await shell.waitFor(/\n(.*?)\r?\nask> /, { afterSeq: seq, timeoutMs: 5000 });
  console.log(`${command}  ->  ${match.groups[0]?.trim()}`);
  seq = match.seq;
}

await shell.write("exit 3\n");
console.log(`the shell exited with ${(await shell.wait()).exitCode}`);
