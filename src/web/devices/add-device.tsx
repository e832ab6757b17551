import { useEffect, useId, useRef, useState } from "preact/hooks";
import { userMessage } from "../../base/error-message.ts";
import { isLoopbackHost } from "../../forward/forward-rules.ts";
import { newDeviceLink } from "../app/sign-in.ts";
import { QrCode } from "./qr-code.tsx";

type LinkState = { type: "loading" } | { type: "link"; url: string; until: Date } | { type: "refused"; reason: string };

/** Dialog with a one-time login link for another browser, and its QR code if another device can reach this address. */
export function AddDevice({ onClose }: { onClose: () => void }) {
  const [link, setLink] = useState<LinkState>({ type: "loading" });
  const [isCopied, setCopied] = useState(false);
  const dialog = useRef<HTMLDialogElement>(null);
  const titleId = useId();
  useEffect(() => {
    dialog.current?.showModal();
    newDeviceLink().then(
      ({ url, validMs }) => setLink({ type: "link", url, until: new Date(Date.now() + validMs) }),
      (error: unknown) => setLink({ type: "refused", reason: userMessage(error) }),
    );
  }, []);
  const copy = async (url: string) => {
    await navigator.clipboard.writeText(url);
    setCopied(true);
  };
  const isLocal = isLoopbackHost(location.hostname.replace(/^\[|\]$/g, ""));
  return (
    <dialog ref={dialog} class="add-device" aria-labelledby={titleId} onClose={onClose}>
      <div class="consequences">
        <h2 id={titleId}>Add a device</h2>
        {link.type === "refused" && (
          <p role="alert" class="alert">
            {link.reason}
          </p>
        )}
        {link.type === "link" && (
          <>
            <p>
              Open this link in the other browser. It works once, until {link.until.toLocaleTimeString()}, and signs
              that browser in with your rights.
            </p>
            {isLocal ? (
              <p class="muted">
                This address works only on this computer. For another one, see <code>procwire serve --listen</code> or
                run <code>procwire console --connect ssh://HOST</code> there.
              </p>
            ) : (
              <QrCode text={link.url} label="QR code of the link" />
            )}
            <input
              readOnly
              aria-label="Login link"
              value={link.url}
              onFocus={(event) => event.currentTarget.select()}
            />
          </>
        )}
      </div>
      <div class="actions">
        <button type="button" onClick={() => dialog.current?.close()}>
          Close
        </button>
        {link.type === "link" && (
          <button type="button" class="primary" onClick={() => void copy(link.url)}>
            {isCopied ? "Copied" : "Copy link"}
          </button>
        )}
      </div>
    </dialog>
  );
}
