/**
 * Copies a script to a server, or to this host, runs it with input, and removes it.
 *
 *   node examples/upload-and-run-script.mjs [URL]
 */
import { Environment } from "procwire";

const SCRIPT = `#!/bin/sh
# Counts the words of its input.
wc -w | tr -d ' '
`;

await using environment = await Environment.create(process.argv[2] ?? null);
const { files } = environment;

const directory = `/tmp/procwire-example-${process.pid}`;
await files.createDirectory(directory);
try {
  await files.writeFile(`${directory}/count.sh`, SCRIPT);
  const { stdout, exitCode } = await environment.run(["sh", "count.sh"], {
    cwd: directory,
    input: "one two three four",
  });
  console.log(`${stdout.trim()} words, exit code ${exitCode}`);
} finally {
  await files.remove(directory, { recursive: true });
}
