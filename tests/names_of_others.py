"""What other systems call their files, columns, settings, options and functions: docs/coming-from.md has them."""

from __future__ import annotations

NAMES = {
    "DI-engine and LightZero": """
        total_config.py formatted_total_config.py git_log.txt git_diff.txt result.pkl eval_config.py ckpt_best
        ckpt_interrupt ckpt_exception buffer_logger.txt collector_logger.txt evaluator_logger.txt learner_logger.txt
        commander_logger.txt commander_collector_logger commander_evaluator_logger coordinator_logger.txt
        buffer_tb_logger learner_tb_logger commander_tb_logger events.out.tfevents episode_count envstep_count
        train_sample_count avg_envstep_per_episode avg_sample_per_episode avg_envstep_per_sec
        avg_train_sample_per_sec avg_episode_per_sec collect_time reward_mean reward_std each_reward reward_max
        reward_min total_envstep_count total_train_sample_count total_episode_count total_duration n_sample
        n_episode env_num visit_entropy_mean completed_value_mean eval_episode_return ckpt_name evaluate_time
        avg_time_per_episode avg_time_per_step avg_step_per_episode step_count cur_lr total_loss weighted_total_loss
        policy_loss value_loss policy_entropy reward_loss consistency_loss value_priority target_reward q_value
        target_q_value total_grad_norm_before_clip dormant_ratio alpha_loss critic_loss use_avg use_max priority_avg
        priority_max priority_min staleness_avg staleness_max pushed_in sampled_out current_have use_count_avg
        buffer_data_count collector_iter collector_step evaluator_iter learner_iter learner_step buffer_iter
        buffer_sec Buffer/avg_reanalyze memory_usage_mb policy_time_avg env_time_avg game_result game_segment_length
        num_simulations num_unroll_steps td_steps root_dirichlet ssl_loss_weight mcts_ctree replay_ratio
        update_per_collect target_update_freq weight_sync_interval max_policy_lag max_train_chunk_steps
        max_collect_inflight max_train_budget_queue_size periodic_ckpt_keep_last resume_buffer_min_transitions
        last_iter last_step resume_training save_ckpt_after_iter save_ckpt_after_run load_ckpt_before_run
        log_show_after_iter log_reduce_after_iter register_learner_hook send_policy_freq eval_interval eval_freq
        update_policy_second collector_task_space learner_task_space collector_task_timeout learner_task_timeout
        operator_server path_data path_policy communication_mode learner_gpu_num compressor zergling one_vs_one
        flask_fs stop_value collector_env_num collector_episode_num evaluator_env_num evaluator_episode_num
        n_evaluator_episode max_env_step max_train_iter unroll_len null_padding traj_len nstep priority_IS_weight
        max_use max_staleness push_sample_rate_limit sample_min_limit_ratio thruput_controller window_seconds
        periodic_thruput sampled_data_attr enable_track_used_data DI_STORE random_collect_size dynamic_seed
        --query-registry --exp-name --train-iter --env-step --load-path --replay-path --enable-total-log
        --disable-flask-log --platform --module-name --coordinator-host -cdh --kubeconfig --profile spawn_learner
        learner_aggregator --add --delete --restart --env --policy ditask serial_onpolicy serial_sqil serial_gail
        serial_offline serial_ngu serial_reward_model serial_dqfd serial_trex create_config main_config
        system_config COORDINATOR_PORT DIJob finish_info retry_type max_retry step_timeout shared_memory env_manager
        exp_config
    """,
    "Spinning Up": """
        config.json progress.txt vars.pkl pyt_save tf1_save simple_save model_info.pkl saved_model.pb variables/
        DEFAULT_DATA_DIR FORCE_DATESTAMP DEFAULT_SHORTHAND DEFAULT_BACKEND WAIT_BEFORE_LAUNCH test_policy --itr
        --norender --episodes --deterministic load_policy_and_env run_policy ExperimentGrid variant_name valid_str
        shorthand in_name exp_name setup_logger_kwargs --hid --act --dt --cpu --num_cpu --data_dir --datestamp
        --legend --xaxis --count --smooth --select --exclude --est Performance mpi_fork mpi_avg_grads sync_params
        EpochLogger log_tabular dump_tabular save_config save_state setup_pytorch_saver restore_tf_graph output_dir
        output_fname AverageEpRet AverageTestEpRet EpLen TestEpLen TotalEnvInteracts VVals QVals LossPi LossV LossQ
        DeltaLossPi Entropy ClipFrac StopIter BacktrackIters Q1Vals LogPi steps_per_epoch ac_kwargs hidden_sizes
        activation clip_ratio pi_lr vf_lr train_pi_iters train_v_iters max_ep_len target_kl logger_kwargs save_freq
        replay_size polyak q_lr batch_size start_steps update_after update_every num_test_episodes act_noise
        target_noise noise_clip policy_delay
    """,
    "ML-Agents": """
        configuration.yaml checkpoint.pt .onnx training_status.json timers.json Player- last_replay_buffer
        stats_format_version final_checkpoint creation_time auxillary_file_paths trainer_type checkpoint_interval
        keep_checkpoints even_checkpoints max_steps time_horizon summary_freq threaded init_path hidden_units
        num_layers vis_encode_type reward_signals self_play behavioral_cloning buffer_size buffer_init_steps
        learning_rate learning_rate_schedule epsilon lambd num_epoch steps_per_update save_replay_buffer
        default_settings checkpoint_settings --run-id --resume --force --initialize-from --inference --deterministic
        --seed --base-port --num-envs --num-areas --debug --env-args --max-lifetime-restarts --restarts-rate-limit-n
        --restarts-rate-limit-period-s --results-dir --timeout-wait --width --height --quality-level --time-scale
        --target-frame-rate --capture-frame-rate --no-graphics --no-graphics-monitor --torch-device --train
        --save-freq
        Policy/Entropy Policy/Epsilon Policy/Beta
        Self-play/ELO
        StatsReporter add_stat set_stat mlagents.stats_writer ConsoleWriter GaugeWriter TensorboardWriter
    """,
    "rlpyt": """
        MinibatchRl MinibatchRlEval SyncRl SyncRlEval AsyncRl AsyncRlEval get_n_itr n_steps log_interval_steps
        itr_batch_size world_size min_itr_learn log_traj_window SerialSampler CpuSampler GpuSampler
        AlternatingSampler NoOverlapAlternating AsyncSerialSampler batch_T batch_B max_decorrelation_steps
        eval_n_envs eval_max_steps eval_max_trajectories replay_ratio min_steps_learn affinity encode_affinity
        quick_affinity_code master_cpus workers_cpus all_cpus master_torch_threads worker_torch_threads cuda_idx
        alternating set_affinity hyperthread_offset run_slot n_socket logger_context log_dir run_ID log_params
        snapshot_mode snapshot_gap override_prefix use_summary_writer params.json params.pkl progress.csv debug.log
        CumTrainTime Iteration CumTime CumSteps CumCompletedTrajs CumUpdates StepsPerSecond UpdatesPerSecond
        ReplayRatio CumReplayRatio NewCompletedTrajs StepsInTrajWindow StepsInEval TrajsInEval CumEvalTime
        SamplerIteration NonEvalSamplesPerSecond OptThrottle LengthAverage ReturnAverage ReturnStd ReturnMedian
        NonzeroRewards DiscountedReturn GameScore lossAverage gradNorm tdAbsErr perplexity muLoss qLoss q1Loss
        piLoss run_experiments runs_per_setting VariantLevel make_variants update_config experiments_tree.txt
        num_launched.txt variant_config.json add_exp_param check_progress store_diagnostics log_diagnostics
        save_itr_snapshot taskset
    """,
}

IN_WORDS = {
    "ML-Agents": (
        "Environment/Cumulative Reward",
        "Environment/Episode Length",
        "Environment/Lesson Number",
        "Policy/Learning Rate",
        "Policy/Extrinsic Value",
        " Estimate",
        "Policy/Extrinsic Reward",
        "Losses/Policy Loss",
        "Losses/Value Loss",
        "Losses/Q1 Loss",
        "Is Training",
        "Mean Reward",
        "No episode",
        " was",
        " completed",
    )
}
"""Those with spaces."""

FIELD_WORDS = {
    "retry": "restarts",
    "learner": "ranks",
    "init": "initial",
    "entcoef": "temperature entropy",
    "ent": "entropy temperature",
    "coef": "coefficient",
    "coeff": "coefficient",
    "lr": "learning",
    "gamma": "discount",
    "schedule": "anneal decay schedule",
}
"""Words of Remuda for a word of others."""

OTHER_MEANINGS = {
    "env.collector_episode_num": "episode",
    "policy.collect.n_episode": "pisode",
}
"""By the first of the names in a row with a dash: a word of names that Remuda has, and that mean something else."""
