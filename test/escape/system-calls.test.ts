import assert from "node:assert/strict";
import { at, attemptProgram, intent, READ_ROOT, readOnly, testEscape, workspaceWrite } from "./inside.ts";

testEscape("the sandbox includes a system call filter", async (fixture) => {
  const { output } = await fixture.script(readOnly(), "grep -E '^(Seccomp|NoNewPrivs|CapEff):' /proc/self/status");
  assert.match(output, /CapEff:\s+0+\n/);
  assert.match(output, /NoNewPrivs:\s+1\n/);
  assert.match(output, /Seccomp:\s+2\n/);
});

testEscape("a command cannot trace another process", async (fixture) => {
  assert.equal(await fixture.attempt(readOnly(), "ptrace"), "EPERM");
});

testEscape("a command cannot set up io_uring, which bypasses the system call filter", async (fixture) => {
  assert.equal(await fixture.attempt(readOnly(), "io_uring"), "EPERM");
});

testEscape("a command cannot create a user namespace, and thus gains no capability", async (fixture) => {
  assert.equal(await fixture.attempt(readOnly(), "unshare"), "EPERM");
  assert.equal(await fixture.attempt(readOnly(), "clone"), "EPERM");
  assert.equal(await fixture.attempt(readOnly(), "clone3"), "ENOSYS");
  assert.equal(await fixture.attempt(readOnly(), "fork"), "ok", "a plain child can");
});

testEscape("a command cannot read the user's kernel keys", async (fixture) => {
  assert.equal(await fixture.attempt(readOnly(), "keyctl"), "EPERM");
});

testEscape("system call numbers of another architecture are rejected", async (fixture, t) => {
  if (process.arch !== "x64") return t.skip("SKIPPED: x32 and i386 exist on x86_64 only");
  assert.equal(await fixture.attempt(readOnly(), "x32"), "EPERM");
  assert.equal(await fixture.attempt(readOnly(), "i386"), "ended with 159", "killed by SIGSYS");
});

testEscape("a command cannot inject input into its terminal", async (fixture) => {
  const { output } = await fixture.script(
    intent([READ_ROOT], { network: "enabled" }),
    `${attemptProgram()} tiocsti; ${attemptProgram()} tiocsti high`,
    { tty: true },
  );
  assert.equal(output.replaceAll("\r", ""), "EPERM\nEPERM\n");
});

testEscape("a command inherits no descriptor of the server", async (fixture) => {
  for (const tty of [false, true]) {
    const { output } = await fixture.script(workspaceWrite(fixture.directory), "ls -l /proc/self/fd", { tty });
    const held = [...output.matchAll(/ (\d+) -> (.*)/g)].map(([, fd, target]) => [fd, target?.trim()]);
    // The three standard streams, and the directory that `ls` lists.
    assert.deepEqual(
      held.map(([fd]) => fd),
      ["0", "1", "2", "3"],
      output,
    );
    assert.match(held[3]?.[1] ?? "", /^\/proc\/\d+\/fd$/);
  }
  // The process that set up the sandbox also leaks no descriptor: one of its open roots would bypass the sandbox.
  const workspace = fixture.makeDirectory("workspace");
  fixture.makeDirectory("workspace/.git");
  const sandbox = intent([READ_ROOT, at(workspace, "write"), at(`${workspace}/.git`, "read")]);
  const { output } = await fixture.script(sandbox, "ls -l /proc/1/fd");
  // Where the kernel has Landlock, the command cannot read the links at all.
  assert.match(output, / 0 -> |'\/proc\/1\/fd\/0': Permission denied/);
  assert.doesNotMatch(output, /procwire-escape/);
});

testEscape("processes and devices of the host are hidden", async (fixture) => {
  const { output } = await fixture.script(
    readOnly(),
    `kill -0 ${process.pid} 2>/dev/null && echo reached; ls /proc | grep -c '^[0-9]'; ls /dev | tr '\\n' ' '; ls /dev/pts | wc -l`,
  );
  assert.doesNotMatch(output, /reached/);
  assert.ok(Number(output.split("\n")[0]) < 10, output);
  assert.doesNotMatch(output, /\b(sd[a-z]|vd[a-z]|nvme|kvm|mem|kmsg|fuse|loop)/);
});

testEscape("kernel settings cannot be changed", async (fixture) => {
  const { output } = await fixture.script(
    readOnly(),
    `for file in sys/kernel/core_pattern sys/kernel/hostname sys/vm/drop_caches sysrq-trigger irq/default_smp_affinity; do
       [ -e /proc/$file ] && { : >>/proc/$file; } 2>/dev/null && echo "$file can be written"
     done; true`,
  );
  assert.equal(output, "");
});

testEscape(
  "a server without the addon applies the same sandbox",
  async (fixture) => {
    const { output } = await fixture.script(
      workspaceWrite(fixture.directory),
      "grep ^Seccomp: /proc/self/status; echo x >file",
    );
    assert.match(output, /^Seccomp:\s+2\n$/);
    assert.equal(await fixture.attempt(readOnly(), "connect", "/nowhere"), "EPERM");
    const held = await fixture.script(readOnly(), "ls -l /proc/self/fd");
    assert.doesNotMatch(held.output, /deleted|procwire/);
  },
  { env: { PROCWIRE_NATIVE_SPAWNER: "/nowhere/spawner.node" } },
);
