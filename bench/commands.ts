import { spawnSync } from "node:child_process";
import { median } from "./report.ts";
import type { Metric, Scenario } from "./scenarios.ts";

/** Runs of each command per round; the commands take turns. */
const RUNS = 9;

const LABELS = {
  runMs: "`procwire run -- true`",
  runConnectedMs: "`procwire run --connect URL -- true`",
  psMs: "`procwire ps --connect URL`",
  logsMs: "`procwire logs --connect URL HANDLE`",
  killMs: "`procwire kill --connect URL HANDLE`",
} as const;

/** Maximum time of a short command beyond that of a bare Node. */
const TARGET = { atMostValue: 25 };

/** Short commands of the CLI, without the time of a bare Node that runs an empty script. The peer has no such command. */
export const commandTimes: Scenario = {
  name: "commands",
  rounds: 3,
  metrics: [
    { label: "bare Node, empty script", key: "bareMs", unit: "ms", better: "lower" },
    ...Object.entries(LABELS).map(
      ([key, label]): Metric => ({
        label: `${label}, beyond bare Node`,
        key,
        unit: "ms",
        better: "lower",
        target: TARGET,
      }),
    ),
  ],
  async run({ kind, server }) {
    const [program = ""] = kind.command;
    if (kind.name !== "ours") return {};
    const connect = ["--connect", server.url];
    const handle = run(program, ["run", "--detach", ...connect, "--", "sleep", "600"]);
    const commands: Record<"bareMs" | keyof typeof LABELS, [program: string, args: string[]]> = {
      bareMs: [process.execPath, ["-e", ""]],
      runMs: [program, ["run", "--", "true"]],
      runConnectedMs: [program, ["run", ...connect, "--", "true"]],
      psMs: [program, ["ps", ...connect]],
      logsMs: [program, ["logs", ...connect, handle]],
      // A signal that changes nothing.
      killMs: [program, ["kill", "--signal", "CONT", ...connect, handle]],
    };
    const times: Record<string, number[]> = {};
    for (let at = 0; at < RUNS; at++) {
      for (const [name, [file, args]] of Object.entries(commands)) {
        const before = performance.now();
        run(file, args);
        const earlier = times[name] ?? [];
        times[name] = [...earlier, performance.now() - before];
      }
    }
    const bareMs = median(times.bareMs ?? []) ?? 0;
    const beyond = Object.keys(LABELS).map((key) => [key, (median(times[key] ?? []) ?? 0) - bareMs]);
    return { bareMs, ...Object.fromEntries(beyond) };
  },
};

function run(file: string, args: string[]): string {
  const ran = spawnSync(file, args, { stdio: ["ignore", "pipe", "pipe"], encoding: "utf8" });
  if (ran.status !== 0) throw new Error(`${file} ${args.join(" ")} exited with ${ran.status}: ${ran.stderr}`);
  return ran.stdout.trim();
}
