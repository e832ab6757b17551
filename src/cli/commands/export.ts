import { exportRecording } from "../../client/recording/export-recording.ts";
import { OutputFile } from "../../files/output-file.ts";
import { type Command, UsageError } from "../command.ts";
import { defineServerCommand, openClient } from "../server-command.ts";
import { findProcess, HANDLE_HELP } from "../support/find-process.ts";
import { gapMessage } from "../terminal/process-output.ts";

const HELP = `Usage: procwire export [OPTIONS] ID FILE

Write the retained output of a process as an asciicast (version 3), for \`procwire replay\` and asciinema.

Options:
  --input  include recorded input of a process started with \`run --record-input\`; never input that was not echoed
`;

export const command: Command = defineServerCommand({
  help: HELP,
  notes: `${HANDLE_HELP}FILE: file to write, or - for stdout\n`,
  options: { input: { type: "boolean" } },

  async run(values, positionals) {
    const [id, file, ...more] = positionals;
    if (id === undefined || file === undefined || more.length > 0) throw new UsageError("give an ID and a FILE");
    await using output = file === "-" ? OutputFile.stdout() : await OutputFile.open(file);
    await using client = await openClient(values);
    const { handle } = await findProcess(client, id);
    await using child = await client.attach(handle);
    const { text, missedBytes } = await exportRecording(child, { input: values.input });
    if (missedBytes !== 0) process.stderr.write(`procwire export: ${gapMessage(missedBytes)}\n`);
    await output.write([text]);
    return 0;
  },
});
