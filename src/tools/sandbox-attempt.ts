import { posix } from "node:path";
import type { SandboxType } from "../exec/exec-process.ts";
import type { SandboxPolicy, SandboxRoot } from "../sandbox/bubblewrap.ts";
import { bubblewrapArgv } from "../sandbox/bubblewrap.ts";

/** Which walls stand around the commands of a model. */
export type SandboxChoice =
  | { type: "none" }
  | {
      type: "bubblewrap";
      /** Absolute paths on the host of the processes. Everything else can only be read. */
      writableRoots: readonly string[];
      /** Names inside each writable root that stay read-only. Default: `.git`, whose hooks run outside later. */
      protectedNames?: readonly string[];
      /** Hidden altogether. */
      deniedRoots?: readonly string[];
      network: boolean;
      /** An empty /tmp of its own for each command. Default: true. */
      privateTmp?: boolean;
    };

/** A command made ready to start: walls and network policy applied, nothing left to decide. */
export interface PreparedCommand {
  argv: string[];
  sandboxType: SandboxType;
}

/** Refuses a choice the host cannot hold. Nothing is ever run with fewer walls than were chosen. */
export function checkSandbox(choice: SandboxChoice, hostSandboxes: readonly string[] | undefined): void {
  if (choice.type === "none" || hostSandboxes?.includes(choice.type)) return;
  const has = !hostSandboxes
    ? "the host does not say which it has"
    : `the host has ${hostSandboxes.length > 0 ? hostSandboxes.join(", ") : "none"}`;
  throw new Error(`sandbox \`${choice.type}\` is not available: ${has}`);
}

export function prepareCommand(argv: readonly string[], cwd: string, choice: SandboxChoice): PreparedCommand {
  if (choice.type === "none") return { argv: [...argv], sandboxType: "none" };
  return { argv: bubblewrapArgv(policyOf(choice, cwd), argv), sandboxType: "linuxSeccomp" };
}

/** What stays read-only inside of what can be written. */
export function protectedPaths(choice: Extract<SandboxChoice, { type: "bubblewrap" }>): string[] {
  const { writableRoots, protectedNames = [".git"] } = choice;
  return writableRoots.flatMap((root) => protectedNames.map((name) => posix.join(root, name)));
}

function policyOf(choice: Extract<SandboxChoice, { type: "bubblewrap" }>, cwd: string): SandboxPolicy {
  const { writableRoots, deniedRoots = [], network, privateTmp = true } = choice;
  const roots: SandboxRoot[] = [
    { path: "/", access: "read" },
    ...writableRoots.map((path) => ({ path, access: "write" }) as const),
    ...protectedPaths(choice).map((path) => ({ path, access: "read" }) as const),
    ...deniedRoots.map((path) => ({ path, access: "deny" }) as const),
  ];
  return { roots, cwd, network, tmp: privateTmp ? "private" : "shared", devices: "minimal" };
}
