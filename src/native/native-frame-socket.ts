import type { FrameSocketEvents } from "../connection/frame-socket.ts";
import {
  type NativeAddon,
  NativeEventError,
  type NativeSocket,
  type NativeSocketEvent,
  type NativeSocketListener,
} from "./addon.ts";
import { closeProblem } from "./native-codec.ts";

/**
 * The members of a FrameSocket that only call the addon, received data, and the events after the upgrade. `Unframed` are
 * the events before the upgrade.
 */
export abstract class NativeFrameSocket<Unframed extends { bytes(received: Buffer): void }> {
  protected readonly native: NativeAddon;
  protected readonly socket: NativeSocket;
  protected unframed: Unframed | null = null;
  protected frames: FrameSocketEvents | null = null;

  constructor(native: NativeAddon, socket: NativeSocket) {
    this.native = native;
    this.socket = socket;
  }

  sendFrame(frame: Buffer): void {
    this.native.sendBytes(this.socket, frame);
  }

  get queuedBytes(): number {
    return this.native.queuedBytes(this.socket);
  }

  get sentBytes(): number {
    return this.native.sentBytes(this.socket);
  }

  get receivedBytes(): number {
    return this.native.receivedBytes(this.socket);
  }

  pause(): void {
    this.native.pauseSocket(this.socket);
  }

  resume(): void {
    this.native.resumeSocket(this.socket);
  }

  end(): void {
    this.native.endSocket(this.socket);
  }

  abstract destroy(): void;

  protected readonly onData: NativeSocketListener["onData"] = (type, data) => {
    if (type === "text") this.frames?.text(data);
    else if (type === "message") this.frames?.message(data, "text");
    else if (type === "binary") this.frames?.message(data, "binary");
    else (this.frames ?? this.unframed)?.bytes(data);
  };

  protected onFrameEvent(frames: FrameSocketEvents, event: NativeSocketEvent): void {
    switch (event.type) {
      case "drain":
        frames.drain();
        break;
      case "end":
        frames.end();
        break;
      case "close":
        frames.close(closeProblem(event));
        break;
      default:
        // An event was lost, so the connection cannot continue.
        this.destroy();
        frames.close(new NativeEventError("socket", event).message);
    }
  }
}
