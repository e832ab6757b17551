import { createLocalBackend } from "../../src/local/local-backend.ts";
import { availableSandboxes } from "../../src/sandbox/available.ts";
import { testCommands } from "./command-behaviour.ts";
import { behavesOn } from "./host.ts";
import { testWalls } from "./walled-behaviour.ts";

const behaves = behavesOn("here", async () => {
  const backend = createLocalBackend();
  return {
    backend,
    sandboxes: availableSandboxes(),
    [Symbol.asyncDispose]: () => backend[Symbol.asyncDispose](),
  };
});
testCommands(behaves);
testWalls(behaves);
