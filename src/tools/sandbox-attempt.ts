import type { SandboxType } from "../exec/exec-process.ts";
import type { SandboxPolicy, SandboxRoot } from "../sandbox/bubblewrap.ts";
import { bubblewrapArgv } from "../sandbox/bubblewrap.ts";

/** Which walls stand around the commands of a model. */
export type SandboxChoice =
  | { type: "none" }
  | {
      type: "bubblewrap";
      /** Absolute paths on the host of the processes, free of links. Everything else can only be read. */
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
  sandbox: SandboxChoice["type"];
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

export function prepareCommand(argv: string[], cwd: string, choice: SandboxChoice): PreparedCommand {
  if (choice.type === "none") return { argv, sandbox: "none", sandboxType: "none" };
  return {
    argv: bubblewrapArgv(policyOf(choice, cwd), argv),
    sandbox: "bubblewrap",
    sandboxType: "linuxSeccomp",
  };
}

function policyOf(choice: Extract<SandboxChoice, { type: "bubblewrap" }>, cwd: string): SandboxPolicy {
  const { writableRoots, protectedNames = [".git"], deniedRoots = [], network, privateTmp = true } = choice;
  const roots: SandboxRoot[] = [
    { path: "/", access: "read" },
    ...writableRoots.map((path) => ({ path, access: "write" }) as const),
    ...writableRoots.flatMap((root) =>
      protectedNames.map((name) => ({ path: `${root}/${name}`, access: "read" }) as const),
    ),
    ...deniedRoots.map((path) => ({ path, access: "deny" }) as const),
  ];
  return { roots, cwd, network, tmp: privateTmp ? "private" : "shared", devices: "minimal" };
}
