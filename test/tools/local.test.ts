import { describe } from "node:test";
import { createLocalBackend } from "../../src/host/create-local-backend.ts";
import { availableSandboxes } from "../../src/sandbox/sandbox-probe.ts";
import { testCommands } from "./command-behavior.ts";
import { behavesOn } from "./host.ts";
import { testLogin } from "./login-behavior.ts";
import { testSandbox } from "./sandboxed-behavior.ts";
import { testSwappedWorkdirs } from "./swapped-workdir.ts";

const behaves = behavesOn(async () => {
  const backend = createLocalBackend();
  return {
    backend,
    sandboxes: availableSandboxes(),
    [Symbol.asyncDispose]: () => backend[Symbol.asyncDispose](),
  };
});

// These tests mostly wait, so they run concurrently.
describe("local", { concurrency: 4 }, () => {
  testCommands(behaves);
  testSandbox(behaves);
  testLogin(behaves);
  testSwappedWorkdirs(behaves);
});
