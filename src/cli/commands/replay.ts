import { existsSync, readFileSync } from "node:fs";
import { sleep, systemClock } from "../../async/clock.ts";
import { errorMessage } from "../../base/error-message.ts";
import { printableText } from "../../base/text/printable-text.ts";
import { type Cast, readCast } from "../../client/recording/cast-reader.ts";
import { exportRecording } from "../../client/recording/export-recording.ts";
import { QueryStripper } from "../../exec/terminal/terminal-queries.ts";
import { type Command, singleArgument } from "../command.ts";
import type { HelpPage } from "../help/help-page.ts";
import { parsePositive } from "../options/parse-number.ts";
import { defineServerCommand, openClient } from "../server-command.ts";
import { findProcess } from "../support/find-process.ts";
import { forceExit } from "../support/forced-exit.ts";
import { runInterruptible } from "../support/interruptible-run.ts";
import { OutputPipe } from "../terminal/process-output.ts";

const HELP: HelpPage = {
  usage: ["[OPTIONS] FILE|ID"],
  details: `Plays a recording (asciicast version 2 or 3), or the retained output of a process, at the speed at which it was
    written. An argument that is not a file is an ID. Of a truncated recording, it plays the complete events.`,
  options: {
    Playback: [
      ["--speed N", "play N times as fast (default: 1)"],
      ["--idle-limit SECONDS", "shorten longer pauses to SECONDS (default: as the recording says)"],
    ],
  },
  examples: [
    ["procwire replay build.cast", "play a file"],
    ["procwire replay --speed 4 --idle-limit 1 build.cast", "four times as fast, without long pauses"],
    ["procwire replay --connect ssh://build-host k3v7", "the output of a process on another host"],
  ],
};

export const command: Command = defineServerCommand("replay", HELP, {
  ids: { includesExited: true },
  options: { speed: { type: "string" }, "idle-limit": { type: "string" } },

  async run(values, positionals) {
    const fileOrId = singleArgument(positionals, "FILE or ID");
    const speed = parsePositive("speed", values.speed) ?? 1;
    const idleLimit = parsePositive("idle-limit", values["idle-limit"]);
    const isFile = existsSync(fileOrId);
    if (!isFile && /\/|\.cast$/.test(fileOrId)) throw new Error(`no such file: ${fileOrId}`);
    const cast = isFile ? readCastFile(fileOrId) : await fetchRecording(fileOrId, values);
    if (cast.isTruncated)
      process.stderr.write(
        `procwire replay: ${printableText(fileOrId)} is truncated; playing its complete events (${cast.events.length})\n`,
      );
    const idleLimitMs = idleLimit === undefined ? (cast.idleLimitMs ?? Number.POSITIVE_INFINITY) : idleLimit * 1000;
    return runInterruptible(async (signal) => forceExit(await play(cast, { speed, idleLimitMs, signal })));
  },
});

function readCastFile(path: string): Cast {
  try {
    return readCast(readFileSync(path));
  } catch (cause) {
    throw new Error(`${path}: ${errorMessage(cause)}`, { cause });
  }
}

async function fetchRecording(id: string, values: Parameters<typeof openClient>[0]): Promise<Cast> {
  await using client = await openClient(values);
  const { handle } = await findProcess(client, id);
  await using child = await client.attach(handle);
  return readCast((await exportRecording(child)).text);
}

interface ReplaySpeed {
  speed: number;
  idleLimitMs: number;
  signal: AbortSignal;
}

/** Writes the output events at their recorded times; skips other events. */
async function play({ events }: Cast, { speed, idleLimitMs, signal }: ReplaySpeed): Promise<number> {
  const output = new OutputPipe(process.stdout);
  // Recorded terminal queries must not be answered again.
  const filter = new QueryStripper();
  let lastMs = 0;
  for (const { atMs, code, data } of events) {
    const pauseMs = Math.max(0, Math.min(atMs - lastMs, idleLimitMs)) / speed;
    await sleep(systemClock, pauseMs, signal).catch(() => undefined);
    if (signal.aborted) return 130;
    lastMs = atMs;
    if (code === "o" && !(await output.write(filter.push(Buffer.from(data))))) return 0;
  }
  await output.write(filter.flush());
  await output.flush();
  return 0;
}
