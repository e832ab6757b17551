import type { NetworkPolicy } from "../protocol/network/network-schemas.ts";

/** Ports of the listeners as the process sees them. */
export interface ProxyPorts {
  http: number;
  /** Null if the policy has no SOCKS5. */
  socks: number | null;
}

const HTTP_VARIABLES = [
  ...["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "WS_PROXY", "WSS_PROXY", "ws_proxy", "wss_proxy"],
  ...["YARN_HTTP_PROXY", "YARN_HTTPS_PROXY", "npm_config_http_proxy", "npm_config_https_proxy", "npm_config_proxy"],
  ...["NPM_CONFIG_HTTP_PROXY", "NPM_CONFIG_HTTPS_PROXY", "NPM_CONFIG_PROXY", "BUNDLE_HTTP_PROXY"],
  ...["BUNDLE_HTTPS_PROXY", "PIP_PROXY", "DOCKER_HTTP_PROXY", "DOCKER_HTTPS_PROXY"],
];
const SOCKS_VARIABLES = ["ALL_PROXY", "all_proxy", "FTP_PROXY", "ftp_proxy"];
const NO_PROXY_VARIABLES = ["NO_PROXY", "no_proxy", "npm_config_noproxy", "NPM_CONFIG_NOPROXY", "BUNDLE_NO_PROXY"];
const LOCAL_HOSTS = "localhost,127.0.0.1,::1,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16";

/** Returns the variables that lead the programs of a process to its proxy. They replace variables of the request. */
export function networkVariables(
  { allowLocalBinding }: Pick<NetworkPolicy, "allowLocalBinding">,
  { http, socks }: ProxyPorts,
): Record<string, string> {
  const httpUrl = `http://127.0.0.1:${http}`;
  const socksUrl = socks === null ? httpUrl : `socks5h://127.0.0.1:${socks}`;
  const withValue = (names: readonly string[], value: string) => names.map((name) => [name, value]);
  return Object.fromEntries([
    ...withValue(HTTP_VARIABLES, httpUrl),
    ...withValue(SOCKS_VARIABLES, socksUrl),
    ...withValue(NO_PROXY_VARIABLES, allowLocalBinding ? LOCAL_HOSTS : ""),
    ...withValue(["CODEX_NETWORK_PROXY_ACTIVE", "NODE_USE_ENV_PROXY"], "1"),
    ["CODEX_NETWORK_ALLOW_LOCAL_BINDING", allowLocalBinding ? "1" : "0"],
    ["ELECTRON_GET_USE_PROXY", "true"],
  ]);
}
