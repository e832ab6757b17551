import { exportRecording } from "../../client/recording/export-recording.ts";
import { OutputFile } from "../../files/output-file.ts";
import { type Command, defineCommand, UsageError } from "../command.ts";
import {
  CONNECT_HELP,
  CONNECT_OPTIONS,
  connectTo,
  DEFAULT_URL,
  requireServerUrl,
} from "../options/connect-options.ts";
import { findProcess, HANDLE_HELP } from "../support/find-process.ts";
import { gapMessage } from "../terminal/process-output.ts";

const HELP = `Usage: procwire export [options] ID FILE

Write the retained output of a process as an asciicast (version 3), for \`procwire replay\` and asciinema.

  --input            include recorded input of a process started with \`run --record-input\`; never input that was not echoed
${CONNECT_HELP}
${HANDLE_HELP}Without --connect: ${DEFAULT_URL}. FILE is - for stdout.
`;

export const command: Command = defineCommand({
  name: "export",
  summary: "write the output of a process as an asciicast",
  help: HELP,
  options: { ...CONNECT_OPTIONS, input: { type: "boolean" } },

  async run(values, positionals) {
    const [id, file, ...more] = positionals;
    if (id === undefined || file === undefined || more.length > 0)
      throw new UsageError("give an ID and a FILE");
    await using output = file === "-" ? OutputFile.stdout() : await OutputFile.open(file);
    await using client = await connectTo(requireServerUrl(values.connect), values);
    const { handle } = await findProcess(client, id);
    await using child = await client.attach(handle);
    const { text, missedBytes } = await exportRecording(child, { input: values.input });
    if (missedBytes !== 0) process.stderr.write(`procwire export: ${gapMessage(missedBytes)}\n`);
    await output.write([text]);
    return 0;
  },
});
