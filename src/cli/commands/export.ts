import { writeFileSync } from "node:fs";
import { castOfProcess } from "../../client/recording/export-recording.ts";
import { type Command, commandOf, UsageError } from "../command.ts";
import {
  CONNECT_HELP,
  CONNECT_OPTIONS,
  connectTo,
  DEFAULT_URL,
  neededServerUrl,
} from "../options/connect-options.ts";
import { findProcess, HANDLE_HELP } from "../support/find-process.ts";
import { gapText } from "../terminal/process-output.ts";

const HELP = `Usage: procwire export [options] ID FILE

Writes what a process has shown, as far as its server still has it, as an asciicast (version 3) for \`procwire replay\` and
asciinema.

  --input            also what was typed, of a command started with \`run --record-input\`; never what was not echoed
${CONNECT_HELP}
${HANDLE_HELP}Without --connect: ${DEFAULT_URL}. FILE is - for stdout.
`;

export const command: Command = commandOf({
  name: "export",
  summary: "write what a process of a server has shown as an asciicast",
  help: HELP,
  options: { ...CONNECT_OPTIONS, input: { type: "boolean" } },

  async run(values, positionals) {
    const [id, file, ...more] = positionals;
    if (id === undefined || file === undefined || more.length > 0)
      throw new UsageError("give an ID and a FILE");
    await using client = await connectTo(neededServerUrl(values.connect), values);
    const { handle } = await findProcess(client, id);
    await using child = await client.attach(handle);
    const { text, missedBytes } = await castOfProcess(child, { input: values.input });
    if (missedBytes !== 0) process.stderr.write(`procwire export: ${gapText(missedBytes)}\n`);
    if (file === "-") process.stdout.write(text);
    else writeFileSync(file, text);
    return 0;
  },
});
