/** Environments that may be local. The client library alone must not import the local backend. */

import type { EnvironmentOptions, EnvironmentTarget, LocalEnvironmentServices } from "../client/node/environment.ts";
import { Environment as AnyEnvironment } from "../client/node/environment.ts";
import { ExecServer } from "../server/exec-server.ts";
import { createLocalHost } from "./local-host.ts";

export type Environment = AnyEnvironment;

export const Environment = {
  /**
   * Creates an environment: `null` is the local host, a string is a server URL, an object names a URL or a command.
   *
   * @example
   * await using environment = await Environment.create(null);
   * const { stdout } = await environment.run("date");
   */
  create(target: string | EnvironmentTarget, options: EnvironmentOptions = {}): Promise<Environment> {
    // Options that are not an object pass unchanged, so that they are rejected.
    const isSpreadable = typeof options === "object" && options !== null;
    return AnyEnvironment.create(target, isSpreadable ? { local: createLocalFactory, ...options } : options);
  },
};

function createLocalFactory(): LocalEnvironmentServices {
  const host = createLocalHost({ calledDirectly: true });
  const { backend } = host;
  const server = new ExecServer(host);
  return {
    backend,
    server,
    close: async () => {
      await backend[Symbol.asyncDispose]();
      await server.close();
    },
  };
}
