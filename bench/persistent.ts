/**
 * `node bench/persistent.ts [--pairs N] [--mib N]`: output rate of persistent processes, as a ratio to the output rate
 * of other processes. Both alternate on one server with a supervisor, so that the load of the machine affects both.
 * Prints the medians of all pairs.
 */
import { parseArgs } from "node:util";
import { buildClient, runClient } from "./native-client.ts";
import { ourKind, ServerUnderTest } from "./server-under-test.ts";

const { values } = parseArgs({
  options: { pairs: { type: "string", default: "10" }, mib: { type: "string", default: "256" } },
});
const bytes = Number(values.mib) * 1024 * 1024;
/** A terminal is slower. */
const PTY_DIVISOR = 8;

function median(numbers: number[]): number {
  const sorted = numbers.toSorted((one, other) => one - other);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}

const client = buildClient();
const { command, ...kind } = ourKind();
const server = await ServerUnderTest.start({ ...kind, command: [...command, "--supervised"] });
try {
  for (const source of ["head", "yes", "dd", "pty"]) {
    const amount = source === "pty" ? bytes / PTY_DIVISOR : bytes;
    const measure = async (lifetime: string) => {
      const args = ["output", server.url, `kind=${source}`, `bytes=${amount}`, `lifetime=${lifetime}`];
      return (await runClient(client, args)).mibPerSecond ?? Number.NaN;
    };
    const [plain, persistent]: [number[], number[]] = [[], []];
    for (let pair = 0; pair < Number(values.pairs); pair++) {
      plain.push(await measure("session"));
      persistent.push(await measure("persistent"));
    }
    const ratio = median(persistent.map((rate, pair) => rate / (plain[pair] ?? Number.NaN)));
    console.log(
      `${source}: ${Math.round(median(plain))} MiB/s, persistent ${Math.round(median(persistent))} MiB/s, ratio ${ratio.toFixed(2)}`,
    );
  }
} finally {
  await server.stop();
}
