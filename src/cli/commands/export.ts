import { exportRecording } from "../../client/recording/export-recording.ts";
import { OutputFile } from "../../files/output-file.ts";
import { type Command, UsageError } from "../command.ts";
import type { HelpPage } from "../help/help-page.ts";
import { CAST_OPTIONS, CAST_ROWS, openCastFile, parseCastFormat } from "../options/cast-format.ts";
import { defineServerCommand, openClient } from "../server-command.ts";
import { findProcess } from "../support/find-process.ts";
import { gapMessage } from "../terminal/process-output.ts";

const HELP: HelpPage = {
  usage: ["[OPTIONS] ID FILE"],
  details: `The asciicast has the retained output of the process, for \`procwire replay\` and asciinema. FILE is the
    file to write, or - for stdout.`,
  options: {
    Recording: [
      ...CAST_ROWS,
      [
        "--input",
        "include recorded input of a process started with `run --record-input`; never input that was not echoed",
      ],
    ],
  },
  examples: [
    ["procwire export k3v7q2m9 build.cast", "write the output to a file"],
    ["procwire export --format asciicast-v2 api session.cast", "for asciinema 2"],
    ["procwire export --connect ssh://build-host k3v7 - | asciinema play -", "play the output of another host"],
  ],
};

export const command: Command = defineServerCommand("export", HELP, {
  ids: { includesExited: true },
  options: { ...CAST_OPTIONS, input: { type: "boolean" } },

  async run(values, positionals) {
    const [id, file, ...more] = positionals;
    if (id === undefined || file === undefined || more.length > 0) throw new UsageError("give an ID and a FILE");
    const version = parseCastFormat(values.format);
    await using output = file === "-" ? OutputFile.stdout() : await openCastFile("export", file, values.force);
    await using client = await openClient(values);
    const { handle } = await findProcess(client, id);
    await using child = await client.attach(handle);
    const { text, missedBytes } = await exportRecording(child, { input: values.input, version });
    if (missedBytes !== 0) process.stderr.write(`procwire export: ${gapMessage(missedBytes)}\n`);
    await output.write([text]);
    return 0;
  },
});
