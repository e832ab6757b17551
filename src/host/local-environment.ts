/** Environments that may be this machine: the client library alone must not import the local backend. */

import {
  Environment as AnyEnvironment,
  type EnvironmentOptions,
  type EnvironmentTarget,
  type LocalEnvironmentParts,
} from "../client/node/environment.ts";
import { ExecServer } from "../server/exec-server.ts";
import { createLocalHost } from "./local-host.ts";

export type Environment = AnyEnvironment;

export const Environment = {
  /**
   * A place to work in: `null` is this machine, a text is a server's URL, an object names a URL or a program.
   *
   * @example
   * await using environment = await Environment.create(null);
   * const { stdout } = await environment.run("date");
   */
  create(target: string | EnvironmentTarget, options: EnvironmentOptions = {}): Promise<Environment> {
    return AnyEnvironment.create(target, { local: localParts, ...options });
  },
};

function localParts(): LocalEnvironmentParts {
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
