import { errorMessage } from "../../base/error-message.ts";
import { openAuthority, type StoredAuthority } from "../../network/credentials/authority-store.ts";
import { ProcessCredentials } from "../../network/credentials/process-credentials.ts";
import type { NetworkProxyOptions } from "../../network/network-proxy.ts";
import { invalidParams } from "../../protocol/errors.ts";
import type { CredentialDefinition } from "../../protocol/network/credential-definition.ts";
import { credentialDirectoryPath, openRuntimeDirectory } from "../runtime-directory.ts";

/** Credentials of one process that are ready for its proxy. */
export interface OpenCredentials extends NonNullable<NetworkProxyOptions["credentials"]> {
  variables: Record<string, string>;
  /** Certificates that the process trusts. */
  readableFiles: readonly string[];
}

/** Shared by all processes of this server. The first credential opens it. */
let stored: StoredAuthority | null = null;

/** Opens the credentials of a process. Rejects with a request error if a secret cannot be read. */
export async function openCredentials(definitions: readonly CredentialDefinition[]): Promise<OpenCredentials> {
  const credentials = new ProcessCredentials(definitions);
  try {
    await credentials.requireSources();
    stored ??= openAuthority(credentialDirectoryPath(), () => openRuntimeDirectory(() => undefined));
  } catch (error) {
    throw invalidParams(errorMessage(error), { cause: error });
  }
  const { authority, bundlePath, originContext } = stored;
  return {
    credentials,
    contextFor: (host) => authority.contextFor(host),
    originContext,
    variables: credentials.variables(bundlePath),
    readableFiles: [bundlePath],
  };
}
