import type { Socket } from "node:net";
import { networkInterfaces } from "node:os";
import { errorMessage } from "../../base/error-message.ts";
import { FIRST_ROUTE_PORT, type RouteProxies } from "../../local/enforced-network.ts";
import type { CreateProcessNetwork } from "../../local/process-network.ts";
import { requireLibuvThreads } from "../../native/libuv-threads.ts";
import { internalError, invalidParams } from "../../protocol/errors.ts";
import type { CredentialDefinition } from "../../protocol/network/credential-definition.ts";

export interface LocalNetworkOptions {
  /** Private addresses use the upstream proxy of the server too. */
  privateViaUpstream?: boolean | undefined;
  /** Credentials that starts may name. */
  credentials?: readonly CredentialDefinition[] | undefined;
}

/** Creates the network proxies of local processes. The first one imports the proxy code. */
export function localNetwork({ privateViaUpstream, credentials = [] }: LocalNetworkOptions = {}): CreateProcessNetwork {
  return async ({ processId, networkProxy: config, decideNetwork, onNetworkDecision, ...start }, isMember) => {
    if (config === undefined) throw internalError("networkProxy is missing");
    // Lookups of names need the thread pool.
    requireLibuvThreads();
    const [{ NetworkProxy }, { networkVariables }, isOwnListener] = await Promise.all([
      import("../../network/network-proxy.ts"),
      import("../../network/child-variables.ts"),
      ownListenerTest(),
    ]);
    const named = findCredentials(credentials, start.credentials ?? []);
    const opened = named.length > 0 ? await (await import("./local-credentials.ts")).openCredentials(named) : null;
    const proxy = new NetworkProxy({
      processId,
      config,
      decide: decideNetwork,
      onDecision: onNetworkDecision,
      isOwnListener,
      // Other systems do not name the peer's process.
      isMember: process.platform === "linux" ? isMember : undefined,
      privateViaUpstream,
      credentials: opened ?? undefined,
    });
    return {
      listen: async () => {
        try {
          return networkVariables(config.proxy, await proxy.listen());
        } catch (error) {
          throw internalError(`failed to build executor network proxy: ${errorMessage(error)}`, { cause: error });
        }
      },
      variablesFor: (ports) => ({ ...networkVariables(config.proxy, ports), ...opened?.variables }),
      readableFiles: opened?.readableFiles ?? [],
      acceptHttp: (socket) => proxy.acceptHttp(socket),
      acceptSocks: (socket) => proxy.acceptSocks(socket),
      close: () => proxy.close(),
    };
  };
}

/** Returns the definitions with these names. Throws for an unknown name. */
function findCredentials(known: readonly CredentialDefinition[], names: readonly string[]): CredentialDefinition[] {
  return [...new Set(names)].map((name) => {
    const found = known.find((definition) => definition.name === name);
    if (found) return found;
    throw invalidParams(
      `credential \`${name}\` is not defined on this server; start it with --credential ${name}=DOMAIN:HEADER:SOURCE`,
    );
  });
}

/** Returns the files of secrets, which sandboxes must not read. */
export function secretFilesOf(definitions: readonly CredentialDefinition[]): string[] {
  return definitions.flatMap(({ source }) => (source.type === "file" ? [source.path] : []));
}

/**
 * Leads a sandbox to the proxies on this host that its environment names. Without one the process exits with Codex's text.
 */
export const routeLocalProxies: RouteProxies = async (env) => {
  const { LoopbackRouter, planLoopbackRoutes } = await import("../../network/loopback-routes.ts");
  const router = new LoopbackRouter(await ownListenerTest());
  const plan = planLoopbackRoutes(env, FIRST_ROUTE_PORT);
  if (plan.type === "unroutable") {
    // prose-ok: all -- Codex text
    const refusal = `failed to prepare host proxy routing bridge: ${plan.reason}`;
    const unused = { port: FIRST_ROUTE_PORT, accept: (socket: Socket) => void socket.destroy() };
    return { variables: {}, listeners: [unused], refusal, close: () => undefined };
  }
  const listeners = plan.routes.map((route) => ({
    port: route.listenPort,
    accept: (socket: Socket) => router.accept(socket, route),
  }));
  return { variables: plan.variables, listeners, refusal: null, close: () => router.close() };
};

/** Returns a function that reports whether an address and a port belong to a listener of this server. */
async function ownListenerTest(): Promise<(address: string, port: number) => boolean> {
  const [{ isLoopbackAddress }, { ownListeningPorts }] = await Promise.all([
    import("../../network/address-ranges.ts"),
    import("../../local/listening-ports.ts"),
  ]);
  const isLocal = (address: string) =>
    isLoopbackAddress(address) ||
    Object.values(networkInterfaces()).some((list) => list?.some((own) => own.address === address));
  return (address, port) => isLocal(address) && ownListeningPorts().has(port);
}
