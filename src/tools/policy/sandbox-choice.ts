import { posix } from "node:path";
import { uriFromPath } from "../../protocol/path-uri.ts";
import type { Access } from "../../sandbox/bubblewrap.ts";

/** Which walls stand around the commands of a model. */
export type SandboxChoice =
  | { type: "none" }
  | {
      type: "bubblewrap";
      /** Absolute paths on the host of the processes. Everything else can only be read. */
      writableRoots: readonly string[];
      /**
       * Names inside each writable root that stay as they are, missing ones too. Default: `.git`, whose hooks run outside
       * later, and `.codex` and `.agents`, which tell agents what to do.
       */
      protectedNames?: readonly string[];
      /** Hidden altogether. */
      deniedRoots?: readonly string[];
      network: boolean;
      /**
       * An empty /tmp of its own for each command, or, `lasting`, one for all commands of these tools, removed when they are
       * closed. Where a root is inside /tmp each command has its own in any case. Default: true.
       */
      privateTmp?: boolean | "lasting";
    };

/** Refuses a choice the host cannot hold. Nothing is ever run with fewer walls than were chosen. */
export function checkSandbox(choice: SandboxChoice, hostSandboxes: readonly string[] | undefined): void {
  if (choice.type === "none" || hostSandboxes?.includes(choice.type)) return;
  const has = !hostSandboxes
    ? "the host does not say which it has"
    : `the host has ${hostSandboxes.length > 0 ? hostSandboxes.join(", ") : "none"}`;
  throw new Error(`sandbox \`${choice.type}\` is not available: ${has}`);
}

const PROTECTED_NAMES = [".git", ".codex", ".agents"];

/**
 * A choice as the wire's sandbox intent, or null for none. `tmpName` names the /tmp that lasts, where one is chosen. The host of the processes raises the walls: only there are the
 * programs, the links to follow and the descriptors that walls need.
 */
export function sandboxIntent(choice: SandboxChoice, tmpName?: string): Record<string, unknown> | null {
  if (choice.type === "none") return null;
  const { writableRoots, protectedNames = PROTECTED_NAMES, deniedRoots = [], privateTmp = true } = choice;
  const kept = writableRoots.flatMap((root) => protectedNames.map((name) => posix.join(root, name)));
  const entries = [
    { path: { type: "special", value: { kind: "root" } }, access: "read" },
    ...writableRoots.map((path) => entryAt(path, "write")),
    ...kept.map((path) => entryAt(path, "read")),
    ...deniedRoots.map((path) => entryAt(path, "deny")),
  ];
  return {
    permissions: {
      type: "managed",
      file_system: { type: "restricted", entries },
      network: choice.network ? "enabled" : "restricted",
    },
    windowsSandboxLevel: "disabled",
    privateTmp: privateTmp !== false,
    // A server that does not know it gives each command a /tmp of its own.
    lastingTmp: privateTmp === "lasting" ? tmpName : undefined,
  };
}

const entryAt = (path: string, access: Access) => ({
  path: { type: "path", path: uriFromPath(path) },
  access,
});
