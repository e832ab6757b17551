import { constants } from "node:os";
import { invalidParams } from "../protocol/errors.ts";

/** The first real-time signal that applications may use; the C library reserves those below it. */
const SIGRTMIN = 34;
const SIGRTMAX = 64;

const NUMBERS = new Map<string, number>(Object.entries(constants.signals));
// SIGIOT and SIGPOLL are aliases of SIGABRT and SIGIO: the first name of a number wins.
const NAMES = new Map<number, string>();
for (const [name, number] of NUMBERS) if (!NAMES.has(number)) NAMES.set(number, name);

/** Returns a name such as `SIGTERM` or `SIGRTMIN+3`; `SIG33` for a number without a name. */
export function signalName(number: number): string {
  const name = NAMES.get(number);
  if (name !== undefined) return name;
  if (number >= SIGRTMIN && number <= SIGRTMAX)
    return number === SIGRTMIN ? "SIGRTMIN" : `SIGRTMIN+${number - SIGRTMIN}`;
  return `SIG${number}`;
}

/** Parses `interrupt`, `SIGUSR1`, `USR1`, `SIGRTMIN+2` and `SIGRTMAX-1`. */
export function signalNumber(name: string): number {
  if (name === "interrupt") return constants.signals.SIGINT;
  const plain = name.startsWith("SIG") ? name : `SIG${name}`;
  const known = NUMBERS.get(plain);
  if (known !== undefined) return known;
  const realTime = /^SIGRT(MIN|MAX)(?:([+-])(\d{1,2}))?$/.exec(plain);
  if (realTime) {
    const base = realTime[1] === "MIN" ? SIGRTMIN : SIGRTMAX;
    const offset = Number(realTime[3] ?? 0) * (realTime[2] === "-" ? -1 : 1);
    const number = base + offset;
    if (number >= SIGRTMIN && number <= SIGRTMAX) return number;
  }
  throw invalidParams(`unknown signal \`${name}\`; expected \`interrupt\` or a name such as \`SIGUSR1\``);
}
