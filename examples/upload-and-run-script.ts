/**
 * Puts a script on the other side, runs it there with some input, and cleans up.
 *
 *   node examples/upload-and-run-script.ts [URL]
 */
import { Environment, run } from "../src/index.ts";

const SCRIPT = `#!/bin/sh
# Counts the words it is given.
wc -w | tr -d ' '
`;

await using environment = await Environment.create(process.argv[2] ?? null);
const { files } = environment;

const directory = `/tmp/procwire-example-${process.pid}`;
await files.createDirectory(directory);
try {
  await files.writeFile(`${directory}/count.sh`, SCRIPT);
  const { stdout, exitCode } = await run(environment.getExecBackend(), ["sh", "count.sh"], {
    cwd: directory,
    input: "one two three four",
  });
  console.log(`${stdout.trim()} words, exit code ${exitCode}`);
} finally {
  await files.remove(directory, { recursive: true });
}
