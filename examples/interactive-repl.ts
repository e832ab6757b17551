/**
 * Talks to a program that wants a terminal: asks a shell two questions and reads its answers.
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
for (const question of ["echo $((6 * 7))", "stty size"]) {
  await shell.write(new TextEncoder().encode(`${question}\n`));
  // The terminal echoes the question; the answer is the line behind it, up to the next prompt.
  const answer = await waitFor(shell, /\n(.*?)\r?\nask> /, { afterSeq: seq, timeoutMs: 5000 });
  console.log(`${question}  ->  ${answer.groups[0]?.trim()}`);
  seq = answer.seq;
}

await shell.write(new TextEncoder().encode("exit 3\n"));
console.log(`the shell ended with ${(await shell.wait()).exitCode}`);
