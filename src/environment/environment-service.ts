import type { EnvironmentInfo, ParamsOf } from "../protocol/methods.ts";
import { environmentInfo } from "./environment-info.ts";

export interface EnvironmentServiceOptions {
  version: string;
  /** Called on the first handshake. */
  degraded?: () => string[];
  /** Returns the sandboxes that work on this host. Runs a process, so it is called only on request. */
  sandboxes?: () => Promise<string[]>;
  /** Reports whether sandboxes enforce a managed network. Runs a process, like `sandboxes`. */
  hasManagedNetwork?: () => Promise<boolean>;
  /** Version of Landlock that sandboxes use; null: none. */
  landlockVersion?: () => number | null;
  /** Throws if this host cannot read files now. */
  beforeReading?: () => void;
}

type Result = Promise<Record<string, unknown>>;

/** Describes this host for a server and caches the result. The first request imports the code that reads files. */
export function createEnvironmentService(options: EnvironmentServiceOptions) {
  let info: EnvironmentInfo | null = null;
  const handshakeInfo = () => {
    info ??= environmentInfo({ version: options.version, degraded: options.degraded?.() ?? [] });
    return info;
  };
  return {
    /** Info for the handshake: fast, and with sandboxes and managed networks only if they are known already. */
    info: handshakeInfo,
    /** Complete info, which may take a moment. */
    async describe(): Promise<EnvironmentInfo> {
      const sandboxes = (await options.sandboxes?.()) ?? [];
      const hasManagedNetwork = (await options.hasManagedNetwork?.()) ?? false;
      const capabilities = {
        ...handshakeInfo().capabilities,
        networkProxyLaunch: hasManagedNetwork,
        networkProxyReviewDomains: hasManagedNetwork,
      };
      const landlockVersion = options.landlockVersion?.() ?? undefined;
      info = { ...handshakeInfo(), sandboxes, capabilities, landlockVersion };
      return info;
    },
    async readConfig(params: ParamsOf<"environmentConfig/read">): Result {
      options.beforeReading?.();
      const { readEnvironmentConfig } = await import("./environment-config.ts");
      return { ...(await readEnvironmentConfig(params)) };
    },
    async discoverRoots(params: ParamsOf<"capabilityRoots/discoverV1">): Result {
      options.beforeReading?.();
      const { discoverCapabilityRoots } = await import("./capability-roots.ts");
      return await discoverCapabilityRoots(params);
    },
    /** Ignores the working directory: the client discovers the skills of a project. */
    async discover(_params: ParamsOf<"capabilities/discoverV2">): Result {
      options.beforeReading?.();
      const { discoverCapabilities } = await import("./capabilities.ts");
      return { ...(await discoverCapabilities()) };
    },
  };
}
