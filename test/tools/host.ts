import { mkdtempSync, realpathSync, rmSync } from "node:fs";
import { test } from "node:test";
import type { ExecBackend } from "../../src/exec/exec-process.ts";
import type { ToolOutput } from "../../src/tools/tool.ts";
import type { UnifiedExec, UnifiedExecOptions } from "../../src/tools/unified-exec.ts";
import { createUnifiedExec } from "../../src/tools/unified-exec.ts";
import { call } from "./calls.ts";

/** A backend that starts processes, and its description. */
export interface Host extends AsyncDisposable {
  backend: ExecBackend;
  sandboxes: readonly string[];
}

export interface Setup {
  unified: UnifiedExec;
  directory: string;
  call: (name: string, args: Record<string, unknown>) => Promise<ToolOutput>;
}

export interface BehaviorOptions {
  skip?: string | false;
  options?: (directory: string) => Partial<UnifiedExecOptions>;
}

export type Behaves = (what: string, run: (set: Setup) => Promise<void>, more?: BehaviorOptions) => void;

/** Defines a test with tools on a new host, in a separate directory outside of /tmp. */
export function behavesOn(openHost: () => Promise<Host>): Behaves {
  return (what, run, more = {}) => {
    void test(what, { skip: more.skip ?? false, timeout: 600_000 }, async () => {
      await using host = await openHost();
      const directory = realpathSync(mkdtempSync("/var/tmp/procwire-tools-"));
      const unified = createUnifiedExec({
        backend: host.backend,
        hostSandboxes: host.sandboxes,
        cwd: directory,
        // Avoids the login profile of the user who runs the tests.
        env: { HOME: directory },
        ...more.options?.(directory),
      });
      try {
        await run({ unified, directory, call: (name, args) => call(unified, name, args) });
      } finally {
        await unified.close();
        rmSync(directory, { recursive: true, force: true, maxRetries: 10 });
      }
    });
  };
}
