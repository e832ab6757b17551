import { isObject } from "../../src/protocol/schema.ts";
import type { Random } from "./random.ts";

/** What a simulated program does; it stands in its argv, as a real one's would. */
export interface Program {
  /** The key of the pattern it writes, and of the one it is fed with. */
  key: number;
  /** Output of its own, in chunks, with so much time between them. */
  outputBytes: number;
  chunkBytes: number;
  everyMs: number;
  /** Every other chunk goes to stderr, which has the same pattern of its own. */
  usesStderr: boolean;
  /** `echo` returns its input, `count` prints its length at the end. Both end when their input does. */
  input: "none" | "echo" | "count";
  /** How much it reads at a time, and how often. */
  readBytes: number;
  readEveryMs: number;
  /** How long it stays after its last output. */
  lingerMs: number;
  exitCode: number;
  /** Output of a descendant after its exit. */
  lateBytes: number;
  ignoresTerm: boolean;
  /** How long it takes to start; `fails` ends that with an error. */
  startMs: number;
  fails: boolean;
}

export function randomProgram(random: Random): Program {
  const isQuick = random.chance(0.3);
  return {
    key: random.int(0, 255),
    outputBytes: random.chance(0.2) ? 0 : random.scaled(1, random.chance(0.1) ? 400_000 : 40_000),
    chunkBytes: random.scaled(1, 6000),
    everyMs: isQuick ? 0 : random.scaled(1, 4000),
    usesStderr: random.chance(0.2),
    input: random.pick(["none", "none", "echo", "count"]),
    readBytes: random.scaled(16, 65_536),
    readEveryMs: random.scaled(1, 500),
    lingerMs: random.chance(0.5) ? 0 : random.scaled(1, 90_000),
    exitCode: random.int(0, 255),
    lateBytes: random.chance(0.2) ? random.int(1, 5000) : 0,
    ignoresTerm: random.chance(0.2),
    startMs: random.chance(0.5) ? 0 : random.scaled(1, 5000),
    fails: random.chance(0.03),
  };
}

/** At most this many chunks, however small they are: a run must stay short. */
export function chunkBytesOf({ outputBytes, chunkBytes }: Program): number {
  return Math.max(chunkBytes, Math.ceil(outputBytes / 60));
}

export function toArgv(program: Program): string[] {
  return ["simulated", JSON.stringify(program)];
}

export function fromArgv(argv: readonly string[]): Program {
  const parsed: unknown = JSON.parse(argv[1] ?? "");
  if (!isProgram(parsed)) throw new Error(`no simulated program: ${argv.join(" ")}`);
  return parsed;
}

function isProgram(value: unknown): value is Program {
  return isObject(value) && typeof value.key === "number" && typeof value.exitCode === "number";
}
