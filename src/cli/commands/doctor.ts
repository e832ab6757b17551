import { messageOf } from "../../base/error-message.ts";
import { visibleText } from "../../base/printable-text.ts";
import { createLocalBackend } from "../../host/this-machine.ts";
import { type Controller, makeCgroup } from "../../local/tree/cgroups.ts";
import { loadAddon } from "../../native/addon.ts";
import { nativeFiles } from "../../native/native-files.ts";
import { availableSandboxes, BUBBLEWRAP } from "../../sandbox/sandbox-probe.ts";
import { type Command, commandOf } from "../command.ts";

const HELP = `Usage: procwire doctor [--json]

Tries what procwire uses on this machine, and says how to mend what does not work. Exit code 1 when something that every
server needs is missing.

  --json  one JSON object a line
`;

/** The oldest Node that runs procwire. */
const NODE_MAJOR = 24;

type Finding = { name: string; isNeeded: boolean } & (
  | { works: true; detail: string }
  | { works: false; detail: string; mend: string }
);

export const command: Command = commandOf({
  name: "doctor",
  summary: "say what works on this machine, and how to mend the rest",
  help: HELP,
  options: { json: { type: "boolean" } },
  takesWords: false,

  async run(values) {
    const findings = [node(), addon(), await terminals(), watchdog(), bubblewrap(), ...cgroups()];
    for (const finding of findings)
      process.stdout.write(values.json ? `${JSON.stringify(finding)}\n` : shown(finding));
    return findings.some(({ works, isNeeded }) => isNeeded && !works) ? 1 : 0;
  },
});

function shown(finding: Finding): string {
  const line = `${finding.works ? "ok  " : finding.isNeeded ? "FAIL" : "warn"} ${finding.name}: ${visibleText(finding.detail)}\n`;
  return finding.works ? line : `${line}     ${finding.mend}\n`;
}

function node(): Finding {
  const name = "node";
  const detail = process.version;
  if (Number(process.versions.node.split(".")[0]) >= NODE_MAJOR)
    return { name, isNeeded: true, works: true, detail };
  return { name, isNeeded: true, works: false, detail, mend: `install Node ${NODE_MAJOR} or newer` };
}

function addon(): Finding {
  const loaded = loadAddon();
  const name = "addon";
  if (loaded.type === "loaded") return { name, isNeeded: false, works: true, detail: "loaded" };
  const mend =
    "install a C++ compiler and run `node native/build.mjs` in the package: without it there are no terminals";
  return { name, isNeeded: false, works: false, detail: loaded.why, mend };
}

async function terminals(): Promise<Finding> {
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
    const mend = "mend the addon first; in a container, mount a devpts at /dev/pts with /dev/ptmx";
    return { name, isNeeded: false, works: false, detail: messageOf(error), mend };
  }
}

function watchdog(): Finding {
  const name = "watchdog";
  if (!nativeFiles("watchdog").next().done)
    return { name, isNeeded: false, works: true, detail: "`procwire serve` runs below it" };
  const detail = "missing: what a server started may outlive it when it is killed";
  const mend = "install a C compiler and run `node native/build.mjs` in the package";
  return { name, isNeeded: false, works: false, detail, mend };
}

function bubblewrap(): Finding {
  const name = "bubblewrap";
  if (availableSandboxes().includes(BUBBLEWRAP))
    return { name, isNeeded: false, works: true, detail: "a command was run behind walls" };
  const detail = "not installed, or it cannot make namespaces here: commands cannot run behind walls";
  const mend = "install the package `bubblewrap`; in a container, allow user namespaces";
  return { name, isNeeded: false, works: false, detail, mend };
}

/** The limits of a whole tree, each tried with a value that every system takes. */
const TREE_LIMITS: Record<Controller, { limit: string; value: number }> = {
  memory: { limit: "memoryBytes", value: 2 ** 30 },
  pids: { limit: "processes", value: 1000 },
};

function cgroups(): Finding[] {
  return (["memory", "pids"] as const).map((controller): Finding => {
    const name = `cgroup ${controller}`;
    const { limit, value } = TREE_LIMITS[controller];
    try {
      makeCgroup(controller, value).remove();
      return { name, isNeeded: false, works: true, detail: `the limit ${limit} can be kept` };
    } catch (error) {
      const mend = `the limit ${limit} is refused; run as root, or with a delegated cgroup (systemd: Delegate=yes)`;
      return { name, isNeeded: false, works: false, detail: messageOf(error), mend };
    }
  });
}
