import { isObject } from "../../src/base/type-guards.ts";
import type { Random } from "./random.ts";

/** The script of a simulated program, encoded in its argv. */
export interface Program {
  /** Key of the output pattern and of the input pattern. */
  key: number;
  /** Output, in chunks, with a delay between them. */
  outputBytes: number;
  chunkBytes: number;
  everyMs: number;
  /** Sends every other chunk to stderr, which has a separate pattern. */
  usesStderr: boolean;
  /** `echo` returns its input, `count` prints the length of its input. Both exit at the end of their input. */
  input: "none" | "echo" | "count";
  /** Bytes per read, and interval between reads. */
  readBytes: number;
  readEveryMs: number;
  /** Time between the last output and the exit. */
  lingerMs: number;
  exitCode: number;
  /** Output of a descendant after the exit of the leader. */
  lateBytes: number;
  ignoresTerm: boolean;
  /** Duration of the start. With `fails`, the start ends with an error. */
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

/** Maximum number of chunks, so that runs stay short. */
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
