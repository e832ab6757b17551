import { errorMessage } from "../../base/error-message.ts";
import { printableText } from "../../base/printable-text.ts";
import { createLocalBackend } from "../../host/create-local-backend.ts";
import { type Controller, createCgroup } from "../../local/tree/cgroups.ts";
import { loadAddon } from "../../native/addon.ts";
import { nativeFileCandidates } from "../../native/native-files.ts";
import { availableSandboxes, BUBBLEWRAP } from "../../sandbox/sandbox-probe.ts";
import { type Command, defineCommand } from "../command.ts";

const HELP = `Usage: procwire doctor [--json]

Check each part that procwire uses on this host and print how to fix failures. Exits with 1 if a required part is
missing.

  --json  print one JSON object per line
`;

/** The oldest Node that runs procwire. */
const NODE_MAJOR = 24;

type CheckResult = { name: string; isNeeded: boolean } & (
  | { works: true; detail: string }
  | { works: false; detail: string; mend: string }
);

export const command: Command = defineCommand({
  name: "doctor",
  summary: "check this host and print how to fix problems",
  help: HELP,
  options: { json: { type: "boolean" } },
  takesArguments: false,

  async run(values) {
    const findings = [node(), addon(), await terminals(), watchdog(), bubblewrap(), ...cgroups()];
    for (const finding of findings)
      process.stdout.write(values.json ? `${JSON.stringify(finding)}\n` : formatCheck(finding));
    return findings.some(({ works, isNeeded }) => isNeeded && !works) ? 1 : 0;
  },
});

function formatCheck(finding: CheckResult): string {
  const line = `${finding.works ? "ok  " : finding.isNeeded ? "FAIL" : "warn"} ${finding.name}: ${printableText(finding.detail)}\n`;
  return finding.works ? line : `${line}     ${finding.mend}\n`;
}

function node(): CheckResult {
  const name = "node";
  const detail = process.version;
  if (Number(process.versions.node.split(".")[0]) >= NODE_MAJOR)
    return { name, isNeeded: true, works: true, detail };
  return { name, isNeeded: true, works: false, detail, mend: `install Node ${NODE_MAJOR} or newer` };
}

function addon(): CheckResult {
  const loaded = loadAddon();
  const name = "addon";
  if (loaded.type === "loaded") return { name, isNeeded: false, works: true, detail: "loaded" };
  const mend =
    "install a C++ compiler and run `node native/build.mjs` in the package: without it there are no terminals";
  return { name, isNeeded: false, works: false, detail: loaded.why, mend };
}

async function terminals(): Promise<CheckResult> {
  const name = "terminals";
  await using backend = createLocalBackend();
  try {
    const child = await backend.start({
      processId: "doctor",
      argv: ["/bin/sh", "-c", "test -t 0"],
      cwd: "/",
      env: {},
      tty: true,
    });
    const { exitCode } = await child.wait();
    if (exitCode === 0) return { name, isNeeded: false, works: true, detail: "a command was given one" };
    throw new Error(`a command was started in one and did not find it (exit code ${exitCode})`);
  } catch (error) {
    const mend = "fix the addon first; in a container, mount a devpts at /dev/pts with /dev/ptmx";
    return { name, isNeeded: false, works: false, detail: errorMessage(error), mend };
  }
}

function watchdog(): CheckResult {
  const name = "watchdog";
  if (!nativeFileCandidates("watchdog").next().done)
    return { name, isNeeded: false, works: true, detail: "`procwire serve` runs below it" };
  const detail = "missing: what a server started may outlive it when it is killed";
  const mend = "install a C compiler and run `node native/build.mjs` in the package";
  return { name, isNeeded: false, works: false, detail, mend };
}

function bubblewrap(): CheckResult {
  const name = "bubblewrap";
  if (availableSandboxes().includes(BUBBLEWRAP))
    return { name, isNeeded: false, works: true, detail: "ran a sandboxed command" };
  const detail = "not installed, or cannot create namespaces on this host: commands cannot run sandboxed";
  const mend = "install the package `bubblewrap`; in a container, allow user namespaces";
  return { name, isNeeded: false, works: false, detail, mend };
}

/** The limits of a whole tree, each tried with a value that every system takes. */
const TREE_LIMITS: Record<Controller, { limit: string; value: number }> = {
  memory: { limit: "memoryBytes", value: 2 ** 30 },
  pids: { limit: "processes", value: 1000 },
};

function cgroups(): CheckResult[] {
  return (["memory", "pids"] as const).map((controller): CheckResult => {
    const name = `cgroup ${controller}`;
    const { limit, value } = TREE_LIMITS[controller];
    try {
      createCgroup(controller, value).remove();
      return { name, isNeeded: false, works: true, detail: `the limit ${limit} can be kept` };
    } catch (error) {
      const mend = `the limit ${limit} is refused; run as root, or with a delegated cgroup (systemd: Delegate=yes)`;
      return { name, isNeeded: false, works: false, detail: errorMessage(error), mend };
    }
  });
}
