// The player; where the browser cannot play the file, the frame at the chosen time.

import { el } from "./dom.js";
import { clock } from "./words.js";
import { pictures } from "./api.js";

export class Player {
  constructor(root, moved) {
    this.moved = moved;
    this.time = 0;
    this.video = el("video", { controls: true, muted: true, playsinline: true, preload: "auto" });
    this.video.muted = true;
    this.still = el("img", { class: "still", alt: "", hidden: true });
    this.words = el("figcaption");
    root.append(el("figure", {}, this.video, this.still, this.words));
    this.video.addEventListener("loadedmetadata", () => this.loaded());
    this.video.addEventListener("error", () => this.giveUp());
    this.video.addEventListener("timeupdate", () => this.tick());
    this.still.addEventListener("error", () => { this.words.textContent = "This frame cannot be shown."; });
  }

  open({ session, name }) {
    if (this.session === session) return;
    this.session = session;
    this.time = 0;
    this.plays = null;
    this.video.hidden = false;
    this.still.hidden = true;
    this.video.setAttribute("aria-label", `Video ${name}`);
    this.video.src = pictures.video(session);
    this.say();
  }

  loaded() {
    if (!this.video.videoWidth) return this.giveUp(); // only its sound can be played
    this.plays = true;
    if (this.time) this.video.currentTime = this.time + 0.001;
  }

  giveUp() {
    if (this.plays === false || !this.session) return;
    this.plays = false;
    this.video.hidden = true;
    this.still.hidden = false;
    this.video.removeAttribute("src");
    this.jump(this.time);
  }

  jump(time) {
    this.time = time;
    if (this.plays === false) {
      this.still.src = pictures.at(this.session, time, 960);
      this.still.alt = `Frame at ${clock(time, true)}`;
    } else if (this.plays) {
      this.video.pause();
      this.video.currentTime = time + 0.001;
    }
    this.say();
    this.moved(time);
  }

  tick() {
    if (!this.plays || this.video.seeking) return;
    this.time = this.video.currentTime;
    this.say();
    this.moved(this.time);
  }

  say() {
    const note = this.plays === false ? " · your browser cannot play this video, so single frames are shown" : "";
    this.words.textContent = clock(this.time, true) + note;
  }
}
