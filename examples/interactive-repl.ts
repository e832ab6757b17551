/**
 * Runs an interactive shell in a terminal, types two commands and reads their output.
 *
 *   node examples/interactive-repl.ts [URL]
 */
import { Environment, waitFor } from "../src/index.ts";

await using environment = await Environment.create(process.argv[2] ?? null);

await using shell = await environment.getExecBackend().start({
  processId: "repl",
  argv: ["/bin/sh", "-i"],
  cwd: "/",
  env: { PATH: "/usr/bin:/bin", PS1: "ask> " },
  tty: true,
  size: { rows: 24, cols: 80 },
});

let { seq } = await waitFor(shell, "ask> ");
for (const command of ["echo $((6 * 7))", "stty size"]) {
  await shell.write(new TextEncoder().encode(`${command}\n`));
  // The terminal echoes the command; its output is the next line, up to the next prompt.
  const match = await waitFor(shell, /\n(.*?)\r?\nask> /, { afterSeq: seq, timeoutMs: 5000 });
  console.log(`${command}  ->  ${match.groups[0]?.trim()}`);
  seq = match.seq;
}

await shell.write(new TextEncoder().encode("exit 3\n"));
console.log(`the shell exited with ${(await shell.wait()).exitCode}`);
