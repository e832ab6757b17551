import { createLocalBackend } from "../../src/host/create-local-backend.ts";
import { loadAddon } from "../../src/native/load-addon.ts";
import { execProcessContract } from "./exec-process-contract.ts";

const native = loadAddon();

execProcessContract(
  "the local backend",
  async () => {
    const backend = createLocalBackend();
    return { backend, close: () => backend[Symbol.asyncDispose]() };
  },
  native.type === "missing" ? { noTerminal: `TERMINALS ARE NOT TESTED: ${native.why}` } : {},
);

execProcessContract(
  "the local backend without the native spawner",
  async () => {
    const backend = createLocalBackend({ forceFallback: true });
    return { backend, close: () => backend[Symbol.asyncDispose]() };
  },
  { noTerminal: "there are no terminals without the native spawner" },
);
